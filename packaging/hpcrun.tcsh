# tcsh
