"""What to install when a package is missing."""

import importlib


def need(module: str, extra: str):
    """Imports a module, or says which extra of this package brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = f"{module} is not installed: pip install 'umbrella-lab[{extra}]'"
        raise ImportError(message, name=module) from error
