#%Module
# Environment Modules: copy to MODULEPATH/hpcrun/VERSION, without an ending. See docs/site-install.md.
set top /opt/hpcrun
set root $top/[file tail [module-info name]]

proc ModulesHelp {} {
    puts stderr "Submits, watches and explains Slurm jobs of PyTorch trainings: hpcrun --help."
    puts stderr "Jobs run with the Python that is active where you submit, not with the one of this module."
}
module-whatis "submits, watches and explains Slurm jobs of PyTorch trainings"

# only the two programs: the environment's own bin would put its Python before the user's
prepend-path PATH $root/bin
# without MANPATH, man finds share/man beside bin; with this folder alone in it, man would find nothing else
if {[info exists env(MANPATH)] && $env(MANPATH) ne ""} {
    prepend-path MANPATH $root/share/man
}
setenv HPCRUN_SITE $top/etc
