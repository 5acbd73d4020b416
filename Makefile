# run and test set everything up first; nothing is installed outside .venv.
VENV := .venv
READY := $(VENV)/ready
PYTHON := $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
  $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))

.PHONY: run demo test check lab docs clean

run: $(READY)
	@$(VENV)/bin/gpudoctor || [ $$? -le 3 ] # 1 and 3 are findings, not failures of make

demo: $(READY)
	@$(VENV)/bin/gpudoctor demo || [ $$? -le 3 ]

test: $(READY)
	$(VENV)/bin/python -m pytest -q -rs

check: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

# A real Linux host to try fixes on: the lab VM, started; its image is built once, as root, in about
# five minutes. The tests start their own from the same image. tests/lab/stop.sh .lab/run ends it.
lab:
	@[ -e .lab/ready.state ] || tests/lab/build.sh .lab
	@tests/lab/run.sh .lab .lab/run
	@echo "gpudoctor --ssh-config .lab/run/ssh_config --host lab   (lab-ops: a sudoer; lab-viewer: no rights)"

# The published JSON schema and the pages of docs/ that are made from the code.
docs: $(READY)
	$(VENV)/bin/python docs/generate.py

$(READY): requirements.lock pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "gpudoctor needs Python 3.11 or newer (python3)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
