-- Lmod: copy to MODULEPATH/hpcrun/VERSION.lua. See docs/site-install.md.
local top = "/opt/hpcrun"
local root = pathJoin(top, myModuleVersion())

help([[Submits, watches and explains Slurm jobs of PyTorch trainings: hpcrun --help.
Jobs run with the Python that is active where you submit, not with the one of this module.]])
whatis("Description: submits, watches and explains Slurm jobs of PyTorch trainings")

-- only the two programs: the environment's own bin would put its Python before the user's
prepend_path("PATH", pathJoin(root, "bin"))
-- without MANPATH, man finds share/man beside bin; with this folder alone in it, man would find nothing else
if (os.getenv("MANPATH") or "") ~= "" then
  prepend_path("MANPATH", pathJoin(root, "share/man"))
end
setenv("HPCRUN_SITE", pathJoin(top, "etc"))
