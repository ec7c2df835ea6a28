# Runs a tool module as the main program, so that its names are in `__main__` and it can import its siblings.
# `python3 -I -c` ignores the start directory and the user's packages. The module `goondan` (`sys.argv[2]`) comes last,
# so that a file of the project or an installed package with this name has precedence.
def _run(path, helper):
    import importlib.abc, importlib.machinery, io, os, sys

    class Helper(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
        def find_spec(self, name, path=None, target=None):
            return importlib.machinery.ModuleSpec(name, self) if name == "goondan" else None

        def get_source(self, name):
            return helper

    sys.meta_path.append(Helper())
    sys.argv[:] = [path]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    names = sys.modules["__main__"].__dict__
    del names["_run"]
    names["__file__"] = path
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    exec(code, names)


_run(*__import__("sys").argv[1:3])
