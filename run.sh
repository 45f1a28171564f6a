#!/bin/sh
# One door to the project: sets it up where that is needed, then runs what is asked. See usage() below.
set -eu
unset CDPATH PYTHONHOME PYTHONPATH VIRTUAL_ENV

root=$(cd -- "$(dirname -- "$0")" && pwd -P)
venv=$root/.venv
stamp=$venv/setup-stamp     # what this environment was installed from; written last
started=$venv/setup-started # process id of a setup that has not finished
uv_version=0.13.9           # of the installer that a machine without one is lent

say() { printf '%s\n' "$*"; }
fail() {
    say "run.sh: $*" >&2
    exit 1
}
usage() {
    say 'usage: sh run.sh demo | test [slow | all | --help] | setup | -- CODESIGN_ARGUMENTS...' >&2
    exit 2
}
tiers() {
    say 'sh run.sh test        lint, types, and the quick tests: unit tests, formulas by hand, gradients (5 minutes)'
    say 'sh run.sh test slow   the tests marked `slow`, formulas with types checked at run time, the site (half an hour)'
    say 'sh run.sh test all    one after the other, as continuous integration does'
    say 'Attacks and fuzzers are run by hand: qa/README.md. CPU seconds by folder: CONTRIBUTING.md.'
    say 'A test is of the slow tier by its mark (`@pytest.mark.slow`, or `pytestmark` for a file). Slow tests by file:'
    "$venv/bin/pytest" --collect-only -q -m slow | grep '^tests/'
}
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
seconds_of() {
    "$1" -c 'import ast, timeit; print(min(timeit.repeat(lambda: ast.literal_eval("[{1: 2}]"), number=200, repeat=50)))'
}
has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }
fingerprint() { (say "$root" && cat "$root/requirements.lock" "$root/pyproject.toml") | cksum; }

# Builds of one release differ by a tenth and more (those profiled when they were built are quicker): sets $python, a
# name, to the quickest on PATH that can build an environment, the first one unless another is quicker by a seventh.
take_quickest() {
    name=$python
    python=$(command -v "$name")
    least=$(seconds_of "$python")
    IFS=:
    for folder in $PATH; do
        other=$folder/$name
        [ "$folder" != "$venv/bin" ] && is_new_enough "$other" || continue
        [ "$installer" = uv ] || has_venv "$other" || continue
        took=$(seconds_of "$other")
        if awk "BEGIN { exit !($took < 6 * $least / 7) }"; then python=$other least=$took; fi
    done
    unset IFS
}

# Sets $python to the first Python that is new enough and can build an environment with the installer at hand.
find_python() {
    lacks_venv=
    for python in python3.14 python3.13 python3.12 python3.11 python3; do
        is_new_enough "$python" || continue
        if [ "$installer" = uv ] || has_venv "$python"; then
            take_quickest
            return
        fi
        lacks_venv=${lacks_venv:-$python}
    done
    [ -n "$lacks_venv" ] || fail 'no Python 3.11 or newer on PATH (on Debian: apt-get install python3 python3-venv)'
    package=$("$lacks_venv" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    fail "$lacks_venv has no venv module; install it first (on Debian: apt-get install $package)"
}

with_pip() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
with_uv() { UV_SYSTEM_CERTS=1 "$uv" pip install --quiet --python "$venv/bin/python" "$@"; }

# Sets $uv to the machine's, or to one in the environment (pip takes two minutes for what uv does in ten seconds), or to
# nothing where there is none for such a machine.
find_uv() {
    uv=$(command -v uv) && return
    uv=$venv/bin/uv
    [ -x "$uv" ] || with_pip --only-binary :all: "uv==$uv_version" >/dev/null 2>&1 || uv=
}

# Installs the given arguments of `pip install` into the environment. What pip is told in its own files (another registry,
# a proxy) uv does not know: where it fails and pip is there, pip has the last word.
install() {
    if [ "$installer" = uv ]; then
        with_uv "$@"
    elif [ -z "$uv" ] || ! with_uv "$@" 2>/dev/null; then
        with_pip --use-pep517 "$@"
    fi
}

# An environment is kept when it is whole, was not moved here from elsewhere and can be installed into.
is_usable() {
    [ ! -e "$started" ] && is_new_enough "$venv/bin/python" || return 1
    grep -qF "$venv" "$venv/bin/activate" || return 1
    [ "$installer" = uv ] || "$venv/bin/python" -m pip --version >/dev/null 2>&1
}

setup() {
    wanted=$(fingerprint)
    if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && is_new_enough "$venv/bin/python"; then return; fi
    if kill -0 "$(cat "$started" 2>/dev/null || echo none)" 2>/dev/null; then
        fail "another setup is at work in $venv; try again when it is done (or remove that folder)"
    fi
    if command -v uv >/dev/null 2>&1; then installer=uv; else installer=pip; fi

    if ! is_usable; then
        find_python
        say "setup: new environment in .venv ($("$python" --version 2>&1), $installer)"
        rm -rf "$venv"
        mkdir "$venv"
        say $$ >"$started"
        if [ "$installer" = uv ]; then
            uv venv --quiet --allow-existing --python "$(command -v "$python")" "$venv"
        else
            "$python" -m venv "$venv"
        fi
    fi
    say $$ >"$started"
    rm -f "$stamp"
    find_uv
    say 'setup: installing requirements.lock (a quarter of a minute; with pip alone two minutes)'
    install -r "$root/requirements.lock" || fail 'could not install the requirements; see the lines above'
    say 'setup: installing codesign'
    install --no-deps -e "$root" || fail 'could not install codesign; see the lines above'
    say "$wanted" >"$stamp"
    rm -f "$started"
    say 'setup: done'
}

step() {
    say "test: $*"
    tool=$1
    shift
    "$venv/bin/$tool" "$@"
}

# Runs the given steps beside the tests, which leave a processor free now and then; what they print comes last.
beside() {
    said=$(mktemp)
    ("$@") >"$said" 2>&1 &
    beside=$!
    trap 'kill "$beside" 2>/dev/null || :; rm -f "$said"' EXIT
    trap 'exit 130' INT TERM
}
# Waits for them; fails where they or the tests failed.
both() {
    wait "$beside" || passed=false
    cat "$said"
    rm -f "$said"
    trap - EXIT
    "$passed"
}
types() {
    export PYRIGHT_PYTHON_IGNORE_WARNINGS=1 # it would otherwise ask the network for a newer version
    step pyright --project pyproject.toml
}
site() {
    if [ -x "$venv/bin/mkdocs" ]; then # extra `docs`
        NO_MKDOCS_2_WARNING=1 step mkdocs build --strict --quiet
    else
        say "test: mkdocs build is left out: it is not installed (pip install 'codesign[docs]')"
    fi
}
quick() {
    step ruff check || return 1
    step ruff format --check || return 1
    beside types
    passed=true
    step pytest -n 2 --dist worksteal -m 'not slow' || passed=false
    both
}
# Tests of the model's formulas, which run once more with types checked at run time.
typed='contracts/test_examples.py test_collectives.py test_collective_library.py test_fabrics.py test_kernels.py
test_memory.py test_models.py test_topology.py test_workloads.py'
# A process's memory grows with what it traced, and to free it costs more than to begin: each part is a process of its
# own, two at a time. The longest come first, so that both processors are done together; a part prints when it has ended.
parts='test_[pq]*.py
test_cla*.py
test_s*.py
contracts reference
test_[mno]*.py
test_[fgh]*.py
test_[t-z]*.py
test_[de]*.py
test_co[mn]*.py
test_[i-l]*.py
test_[ab]*.py
test_r*.py
test_c[!lo]*.py test_cl[!a]*.py test_co[!mn]*.py'
one_part='cd tests && said=$(mktemp) && code=0
"$0" -m slow $1 >"$said" 2>&1 || code=1
printf "test: pytest -m slow %s\n" "$1"
cat "$said"
rm -f "$said"
exit "$code"'
slow() {
    beside site
    passed=true
    printf '%s\n' "$parts" | xargs -P 2 -I PART sh -c "$one_part" "$venv/bin/pytest" PART || passed=false
    (cd tests && step pytest -n 2 -m 'not slow' --jaxtyping-packages=codesign,_lib,checked_types.check $typed) || passed=false
    both
}

task=${1:-}
[ $# -eq 0 ] || shift
tier=
case $task in
test)
    tier=${1:-quick}
    [ $# -le 1 ] || usage
    case $tier in quick | slow | all | --help) ;; *) usage ;; esac
    ;;
setup | demo) [ $# -eq 0 ] || usage ;;
--) ;;
*) usage ;;
esac

setup
case $task in
test)
    cd -- "$root"
    case $tier in
    --help) tiers ;;
    quick | slow) "$tier" || exit 1 ;;
    all)
        ended=0
        quick || ended=1
        slow || ended=1
        exit "$ended"
        ;;
    esac
    ;;
demo)
    cd -- "$root"
    say 'demo: codesign optimize'
    exec "$venv/bin/codesign" optimize
    ;;
--) exec "$venv/bin/codesign" "$@" ;;
esac
