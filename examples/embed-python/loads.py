"""Loads every component of a folder with the installed wasmtime wheel: python loads.py FOLDER

Wheels from 39 on compile components. Wheels up to 38 can only generate Python code from one (`wasmtime.bindgen`), and
that generator fails on every component that exports an interface with a version, as those of Rollcall do.
"""
import importlib.metadata, pathlib, sys

try:
    from wasmtime import Engine
    from wasmtime.component import Component
    load = lambda file, engine=Engine(): Component.from_file(engine, str(file))
except ModuleNotFoundError:
    from wasmtime.bindgen import generate
    load = lambda file: generate(file.stem, file.read_bytes())

version = importlib.metadata.version("wasmtime")
files = sorted(pathlib.Path(sys.argv[1]).glob("*.wasm"))
failed = not files
for file in files:
    try:
        load(file)
        print(f"{file.name}: loads with wasmtime {version}")
    except Exception as error:
        failed = True
        print(f"{file.name}: does not load with wasmtime {version}: {str(error).splitlines()[0]}")
sys.exit(1 if failed else 0)
