"""`python -m tfdiag` is `tfdiag`."""

import sys

from tfdiag.cli import main

sys.exit(main())
