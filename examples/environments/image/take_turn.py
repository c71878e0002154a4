#!/usr/bin/env python3
"""Takes one turn: starts the program in /harness, in a Python that imports no module from /workspace.

A sandbox begins with this file as /workspace/take_turn.py. An environment may write its own turn processor there.
"""

import os
import sys

os.execv(sys.executable, [sys.executable, "/harness/take_turn.py"])
