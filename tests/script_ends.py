"""Programs in a folder, and ways in which a script may end, for tests of the commands that run a script unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ENDS = {
    "error": "def main():\n    raise ValueError('of the script')\n\nmain()\n",
    "chained": "try:\n    {}['x']\nexcept KeyError as error:\n    raise OSError(2, 'no file') from error\n",
    "syntax": "print(1\n",
    "encoding": "# -*- coding: latin-1 -*-\nimport sys\nsys.exit('text of the exit')\n",
    "annotations": "def f(x: int): ...\nprint(f.__annotations__)\n",
    "interrupt": "raise KeyboardInterrupt\n",
    "kill": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "thread": "import threading\nthreading.Thread(target=lambda: print('late')).start()\n",
    "atexit": "import atexit\nwords = ['kept']\natexit.register(lambda: print(words))\n",
    "deleted": "class Named:\n    def __del__(self):\n        print('gone')\n\nnamed = Named()\n",
}


def run_in(folder: Path, *arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Runs `python *arguments` in a folder with files; `name=text` adds the file `name`.py."""
    for name, text in files.items():
        (folder / f"{name}.py").parent.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text)
    path = {"PYTHONPATH": f"{Path(__file__).parents[1]}:{folder}"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=os.environ | path, capture_output=True, text=True, timeout=50
    )
