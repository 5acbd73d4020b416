"""Run gpudoctor as `python -m gpudoctor`."""

from gpudoctor.cli import main

raise SystemExit(main())
