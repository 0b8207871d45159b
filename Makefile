# SSR Local: what people and CI run. POSIX sh and make 3.81 (macOS) suffice.
#
##   make chat    set everything up, then open the chat window
##   make test    set everything up, then run format check, lint, types and tests
##   make bench   run the benchmark tasks; BENCH_ARGS="--tasks json*" chooses
##   make model   fetch the small default model
##   make clean   remove what these commands made here (downloaded models stay)
##
##   PYTHON=python3.12      which Python to use (3.11 or later)
##   CMAKE_ARGS="..."       build flags of llama.cpp; given anew, it is built anew
##   PYTEST_ARGS="-k stop"  passed to pytest;  CHAT_ARGS: passed to ssr-chat

VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
MADE := $(VENV)/.made
MODEL := smollm2-135m

# The stamps in $(MADE) say what is done; they vanish with the environment they speak of.
LLAMA := $(shell sed -n 's/^ *"\(llama-cpp-python==[^"]*\)".*/\1/p' pyproject.toml)

# Flags of llama.cpp's build: those given now, else those of the last build, else the default.
DEFAULT_FLAGS := -DLLAVA_BUILD=OFF
BUILD_FLAGS := $(or $(CMAKE_ARGS),$(shell cut -s -d' ' -f2- $(MADE)/llama 2>/dev/null),$(DEFAULT_FLAGS))
export BUILD_FLAGS

# A Python program: whether llama-cpp-python is here in the right version.
define HAS_LLAMA
import importlib.metadata as m, sys
found = [d.version for d in m.distributions(name="llama-cpp-python")]
sys.exit("$(LLAMA)" not in ["llama-cpp-python==" + version for version in found])
endef
export HAS_LLAMA

FIND_COMPILER = for compiler in "$${CXX:-c++}" g++ clang++ ""; do \
		$$compiler --version >/dev/null 2>&1 && break; done; \
	if [ -z "$$compiler" ]; then printf '%s\n' \
		"No C++ compiler was found, and llama.cpp is built from source. Install one:" \
		"  Debian, Ubuntu: sudo apt-get install build-essential" \
		"  Fedora:         sudo dnf install gcc-c++" \
		"  macOS:          xcode-select --install" >&2; exit 1; fi;

# Steady timing beside other programs, no network, and the exact recipe of docs/lossless.md.
TEST_ENV := OMP_WAIT_POLICY=passive GGML_CPU_TILED_MM=0 GGML_NO_BACKTRACE=1 \
	HF_HUB_OFFLINE=1 GRADIO_ANALYTICS_ENABLED=False

say = @printf '\n==> %s\n'

.PHONY: help chat test bench model check clean FORCE
.NOTPARALLEL:

help:
	@sed -n 's/^##//p' Makefile

chat: $(MADE)/app model
	$(say) "Opening the window (Ctrl-C ends it)"
	@$(BIN)/ssr-chat $(CHAT_ARGS)

test: $(MADE)/dev model check
	$(say) "Tests"
	@$(TEST_ENV) $(PY) -m pytest $(PYTEST_ARGS)

check: $(MADE)/dev
	$(say) "Format and lint (ruff)"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	$(say) "Types (mypy --strict; the first run takes a minute)"
	@$(BIN)/mypy

bench: $(MADE)/core model
	$(say) "Benchmark"
	@$(BIN)/ssr bench $(BENCH_ARGS)

model: $(MADE)/core
	@$(BIN)/ssr models path $(MODEL) >/dev/null 2>&1 || { \
		printf '\n==> %s\n' "Fetching the default model $(MODEL) (98 MB)"; \
		$(BIN)/ssr models pull $(MODEL) \
			|| printf '%s\n' "Going on without it, with the models that are here."; }

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up

$(MADE)/core: pyproject.toml $(MADE)/llama
	$(say) "Installing SSR Local"
	@$(PY) -m pip install -e .
	@touch $@

$(MADE)/app: pyproject.toml $(MADE)/core
	$(say) "Installing the chat window (about 200 MB the first time)"
	@$(PY) -m pip install -e ".[app]"
	@touch $@

$(MADE)/dev: pyproject.toml $(MADE)/core
	$(say) "Installing the development tools (about 600 MB the first time)"
	@$(PY) -m pip install -e ".[dev]"
	@touch $@

# The stamp holds what was built. Flags of one's own never use pip's cache, which ignores them.
$(MADE)/llama: $(MADE)/venv FORCE
	@wanted="$(LLAMA) $$BUILD_FLAGS"; built=$$(cat $@ 2>/dev/null); \
	if [ "$$wanted" = "$$built" ]; then exit 0; fi; \
	fresh="--force-reinstall --no-deps --no-cache-dir"; \
	if [ -z "$$built" ] && [ "$$BUILD_FLAGS" = "$(DEFAULT_FLAGS)" ]; then fresh=; fi; \
	if [ -n "$$fresh" ] || ! $(PY) -c "$$HAS_LLAMA"; then \
		$(FIND_COMPILER) \
		printf '\n==> %s\n    %s\n' "Building llama.cpp from source ($$BUILD_FLAGS)" \
			"About 5 minutes on two cores, only this once; pip says 'still running' meanwhile."; \
		CMAKE_ARGS="$$BUILD_FLAGS" $(PY) -m pip install $$fresh "$(LLAMA)" || { printf '\n%s\n' \
			"llama.cpp could not be built; the compiler's message stands above." >&2; exit 1; }; \
	fi; \
	printf '%s\n' "$$wanted" > $@

# A command named python3.12 may be a pyenv shim that runs nothing, so each is tried.
$(MADE)/venv:
	@recent='import sys; sys.exit(sys.version_info < (3, 11))'; found=; \
	for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.14 python); do \
		if "$$python" -c "$$recent" >/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then printf '%s\n' \
		"No Python 3.11 or later was found$(if $(PYTHON), under the name $(PYTHON))." \
		"Install one, or name it: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; fi; \
	if ! "$$found" -c 'import ensurepip, venv' >/dev/null 2>&1; then printf '%s\n' \
		"$$found has no venv module. On Debian and Ubuntu it is a package of its own:" \
		"  sudo apt-get install python3-venv" >&2; exit 1; fi; \
	if [ ! -x $(PY) ]; then \
		printf '\n==> %s\n' "Making a virtual environment in $(VENV) with $$found"; \
		"$$found" -m venv $(VENV) || exit 1; fi; \
	mkdir -p $(MADE) && touch $@

FORCE:
