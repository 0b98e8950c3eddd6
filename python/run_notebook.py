#!/usr/bin/env python3
"""Executes a notebook from its first cell to its last; the file is not changed."""

import sys
import tempfile

import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
with tempfile.TemporaryDirectory() as folder:
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
print(f"{sys.argv[1]}: {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells executed")
