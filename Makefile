# Thin: each target calls one verb of the CLI. `make help` lists them.
# A value with $ is an expression of make's, and make would run it: refused before anything expands it.
override OF_USERS := ARCH RECIPE REGISTRY JOBS ENGINE OFFLINE COMPONENT AGAINST TO A B WHAT REPORT FILE CONTENTS IMAGE CHANNEL \
  TIER DAYS SIZE RERUN_GATE UNLOCKED NEW_BASE NEW_TOOLS OPERATORS DRY_RUN UNSIGNED YES PYTHON
override GIVEN := $(foreach a.name,$(.VARIABLES),$(if $(findstring command,$(origin $(a.name))),$(a.name)))
$(foreach a.name,$(OF_USERS) $(GIVEN),$(if $(findstring $$,$(value $(a.name))),$(error $(a.name): a value must have no $$ in it: make would run it)))
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help image plan lock update fetch lint render patch-status patch-check patch-test diff size inspect reproduce bundle bundle-import smoke smoke-gpu receipt receipt-verify push pull verify history promote rollback store store-gc engine engine-stop clean test check bench golden requirements

PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.requirements
# Bytecode is kept, but only below .graft: start-up is most of what a build with nothing to do costs.
GRAFT := PYTHONPATH=scripts PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=.graft/pycache $(VENV)/bin/python -m graft

# What the user gives on the command line reaches graft through the environment, never through a shell word.
export ARCH RECIPE REGISTRY JOBS ENGINE OFFLINE COMPONENT AGAINST TO A B WHAT REPORT FILE CONTENTS IMAGE CHANNEL TIER DAYS SIZE

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

image: $(STAMP) ## plan, fetch, build, gate, tag (ARCH=sm90 RECIPE=glm-dsa RERUN_GATE=1 UNLOCKED=1); prints the tagged reference
	@$(GRAFT) image $(if $(RERUN_GATE),--rerun-gate) $(if $(UNLOCKED),--unlocked)

plan: $(STAMP) ## what would be fetched and built, with keys; no network, no engine
	@$(GRAFT) plan --why $${REPORT:+--report "$$REPORT"}

lock: $(STAMP) ## resolve what changed in the recipe and write its lock (NEW_BASE=1, NEW_TOOLS=1: the base's, the host's packages too; OPERATORS=1: docs/gate.md)
	@$(GRAFT) lock $(if $(NEW_BASE),--base) $(if $(NEW_TOOLS),--tools) $(if $(OPERATORS),--operators)

update: $(STAMP) ## newer versions and what they change (COMPONENT=vllm TO=0.33.0 DRY_RUN=1); then recipe and lock, or nothing
	@$(GRAFT) update $(if $(DRY_RUN),--dry-run) $${TO:+--to "$$TO"} -- $${COMPONENT:+"$$COMPONENT"}

fetch: $(STAMP) ## download everything that the lock names
	@$(GRAFT) fetch

lint: $(STAMP) ## hold every recipe, lock and patch to the rules of docs/rules.md (or one: RECIPE=glm-dsa; REPORT=md: Markdown)
	@$(GRAFT) lint $${REPORT:+--report "$$REPORT"}

render: $(STAMP) ## print the Dockerfile
	@$(GRAFT) render

patch-status: $(STAMP) ## every patch against its pin: verdict, symbols, end, last test; no network, no engine
	@$(GRAFT) patch status

patch-check: $(STAMP) ## a component's patches against another version (COMPONENT=vllm AGAINST=0.33.0); writes nothing
	@$(GRAFT) patch check --against "$$AGAINST" -- "$$COMPONENT"

patch-test: $(STAMP) ## red and green of every patch in the image that is built, without building it again
	@$(GRAFT) patch test --all

diff: $(STAMP) ## how two recipes, locks or images differ (A=glm-dsa@v1 B=glm-dsa; REPORT=md: release notes)
	@$(GRAFT) diff $${REPORT:+--report "$$REPORT"} -- "$$A" "$$B"

size: $(STAMP) ## bytes of each component, package and layer of a recipe or an image (WHAT=graft:glm-dsa-sm90)
	@$(GRAFT) size -- $${WHAT:+"$$WHAT"}

inspect: $(STAMP) ## the GPU code of an image's files (IMAGE=graft:glm-dsa-sm90); with ARCH, what it means there, by RECIPE's waivers
	@$(GRAFT) inspect -- "$$IMAGE"

reproduce: $(STAMP) ## build an image again from nothing but itself and compare every file (IMAGE=graft:glm-dsa-sm90)
	@$(GRAFT) reproduce -- "$$IMAGE"

bundle: $(STAMP) ## what a build needs in one FILE, for machines without network (CONTENTS=image|all: the image)
	@$(GRAFT) bundle export $${CONTENTS:+--contents "$$CONTENTS"} -- "$$FILE"

bundle-import: $(STAMP) ## check such a FILE and take what is in it
	@$(GRAFT) bundle import -- "$$FILE"

smoke: $(STAMP) ## run the gate again
	@$(GRAFT) smoke

smoke-gpu: $(STAMP) ## the tests on all NVIDIA GPUs of this host, in the image that is tagged; red where there is none
	@$(GRAFT) smoke --tier gpu

receipt: $(STAMP) ## what the gate found in the image of RECIPE and ARCH (TIER=gpu REPORT=md: Markdown)
	@$(GRAFT) receipt show $${REPORT:+--report "$$REPORT"} $${TIER:+--tier "$$TIER"}

receipt-verify: $(STAMP) ## hold its receipts to their format, the image in the engine and today's tests (TIER=gpu)
	@$(GRAFT) receipt verify $${TIER:+--tier "$$TIER"}

push: $(STAMP) ## publish the image that passed its gate (REGISTRY=host/path): by digest, described, signed; then its tags
	@$(GRAFT) push

pull: $(STAMP) ## what the channel points to, verified and pulled by digest (CHANNEL=stable UNSIGNED=1); says how to run it
	@$(GRAFT) pull $(if $(UNSIGNED),--unsigned) $${CHANNEL:+--channel "$$CHANNEL"} -- $${IMAGE:+"$$IMAGE"}

verify: $(STAMP) ## check a published image (IMAGE=host/path:tag or @sha256:...): signature, receipt, lock, labels
	@$(GRAFT) verify $(if $(UNSIGNED),--unsigned) -- "$$IMAGE"

history: $(STAMP) ## where the channels of a recipe stand in the registry, and every move
	@$(GRAFT) history

promote: $(STAMP) ## move the stable channel to the candidate, or to IMAGE=...; nothing is built
	@$(GRAFT) promote $(if $(UNSIGNED),--unsigned) $${CHANNEL:+--channel "$$CHANNEL"} -- $${IMAGE:+"$$IMAGE"}

rollback: $(STAMP) ## move the stable channel back to its previous verified image
	@$(GRAFT) rollback $(if $(UNSIGNED),--unsigned) $${CHANNEL:+--channel "$$CHANNEL"}

store: $(STAMP) ## the components that are compiled already; `graft store why KEY`, `push` and `pull`: docs/store.md
	@$(GRAFT) store ls

store-gc: $(STAMP) ## remove built components that no recipe names and no build took for DAYS=30 (SIZE=20GB DRY_RUN=1)
	@$(GRAFT) store gc $(if $(DRY_RUN),--dry-run) $${DAYS:+--days "$$DAYS"} $${SIZE:+--size "$$SIZE"}

engine: $(STAMP) ## start the engine and print how to use it
	@$(GRAFT) engine

engine-stop: $(STAMP) ## end the embedded engine
	@$(GRAFT) engine-stop

clean: $(STAMP) ## remove .graft (images, cache, downloads), after asking (YES=1 does not ask)
	@$(GRAFT) clean $(if $(YES),--yes)

test: $(STAMP) ## the tests, two at once
	@$(VENV)/bin/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

check: $(STAMP) ## ruff and mypy
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy

golden: $(STAMP) ## write the golden files of the tests anew
	@GRAFT_UPDATE_GOLDEN=1 $(VENV)/bin/python -m pytest tests/golden

bench: $(STAMP) ## measure against a plain Dockerfile and write docs/performance.md
	@PYTHONPATH=scripts $(VENV)/bin/python tests/bench/bench.py

requirements: $(STAMP) ## pin what Graft itself runs on, from requirements.in
	@$(VENV)/bin/uv pip compile --quiet requirements.in --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --upgrade --output-file requirements.txt

$(STAMP): requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "graft needs Python 3.11 or newer; name one with PYTHON=..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "cannot make a venv: on Debian, apt-get install python3-venv" >&2; exit 2; }
	@$(VENV)/bin/python -m pip -qq --disable-pip-version-check install --require-hashes --requirement requirements.txt >&2
	@printf '#!/bin/sh\nPYTHONPATH="%s/scripts" exec "%s/$(VENV)/bin/python" -m graft "$$@"\n' "$$PWD" "$$PWD" > $(VENV)/bin/graft
	@chmod 755 $(VENV)/bin/graft
	@touch $@
