"""`python -m protoevfl`, the form that torchrun starts."""

import sys

from protoevfl.cli.main import main

sys.exit(main())
