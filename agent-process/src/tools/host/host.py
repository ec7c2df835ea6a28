# Runs a tool module as the main program, so that its names are in `__main__` and it can import its siblings.
# `python3 -I -c` ignores the start directory and the user's packages.
def _run(path):
    import io, os, sys

    sys.argv[:] = [path]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    names = sys.modules["__main__"].__dict__
    del names["_run"]
    names["__file__"] = path
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    exec(code, names)


_run(__import__("sys").argv[1])
