# Every target prepares what it needs by itself: `make venv` is quick when there is nothing to do.

PYTHON ?= python3
CASES ?= tests/cases/data
HARNESS = .venv/bin/python -m ansible_collections.vfio.passthrough.tests

export ANSIBLE_COLLECTIONS_PATH := $(CURDIR)/.venv/collections
export ANSIBLE_INJECT_FACT_VARS := false
export MOLECULE_GLOB := tests/molecule/*/molecule.yml

PARTS = lint unit sanity importer cluster vm molecule

.PHONY: help venv $(PARTS) test demo cases bench soak docs clean

help:  ## say what each target does
	@sed -n 's/^\([a-z][a-z ]*\):.*## /\1: /p' Makefile

venv:  ## packages (as root), Go, .venv
	@$(PYTHON) -m tests.harness.setup

lint: venv  ## ruff, mypy --strict, yamllint, ansible-lint
	@$(HARNESS).harness.suite lint

unit: venv  ## unit and structure tests
	@$(HARNESS).harness.suite unit

sanity: venv  ## ansible-test sanity and units, oldest and newest ansible-core
	@$(HARNESS).harness.suite sanity

importer: venv  ## build the collection and import it as Galaxy would
	@$(HARNESS).harness.suite importer

cluster: venv  ## tests on a real control plane and kubelet
	@$(HARNESS).harness.suite cluster

vm: venv  ## tests on the worker VM, and end to end
	@$(HARNESS).harness.suite vm

molecule: venv  ## the roles and playbooks on the worker VM
	@$(HARNESS).harness.suite molecule

test: venv  ## all of the above, in order; says where the time went
	@$(HARNESS).harness.suite $(PARTS)

demo: venv  ## one device all the way: host, Kubernetes, guest, and back
	@$(HARNESS).e2e.demo

# a relative folder is one of the caller: also with `make -C`, which works in the folder of this file
cases: venv  ## run the case files of CASES=FOLDER
	@$(HARNESS).cases.runner $(firstword $(wildcard $(CASES) $(PWD)/$(CASES)) $(CASES))

bench: venv  ## measure; prints a table and writes build/bench.json
	@$(HARNESS).bench.run

soak: venv  ## what takes longer than `make test` may
	@$(HARNESS).harness.suite soak

docs: venv  ## write the pages that are made from the tree
	@$(HARNESS).harness.docs

clean:  ## remove what the targets made in the tree (the cache folder stays)
	rm -rf build .venv .mypy_cache .pytest_cache .ruff_cache
