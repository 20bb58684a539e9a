# Stands between the commands of a document and the programs that they name. The test sources this file, then runs a
# block. Programs that run until a signal are asked for their check or their help instead, with the same arguments.
# Expects: BIN, the folder of the built programs; ENVOY; ENVOY_ADMIN, the address of a running one; CONFIG, the configuration
# of a running service; ROOT.

isotherm() {
  case $1 in
    check) "$BIN/isotherm" "$@" ;;
    init) "$BIN/isotherm" "$@" --model llama-3.1-8b --force >/dev/null ;; # the engines of the documents do not run
    serve) shift; "$BIN/isotherm" check "$@" ;;
    certificates) "$BIN/isotherm" "$@" ;;
    replicas | regions | explain) "$BIN/isotherm" "$@" --config "$CONFIG" ;;
    doctor) "$BIN/isotherm" "$@" --config "$CONFIG" --envoy-admin "$ENVOY_ADMIN" ;;
    top) case "$*" in *--once*) "$BIN/isotherm" "$@" --config "$CONFIG" ;; *) "$BIN/isotherm" "$@" --help >/dev/null ;; esac ;;
    *) "$BIN/isotherm" "$@" --help >/dev/null ;; # record
  esac
}
isotherm-engine() { "$BIN/isotherm-engine" "$@" --help >/dev/null; }
isotherm-sim() { "$BIN/isotherm-sim" "$@" --help >/dev/null; }
# The repository's own files have paths from its root; those of `isotherm init` are in this folder.
envoy() (
  case "$*" in *" envoy/"*) cd "$ROOT" ;; esac
  "$ENVOY" --mode validate --log-level warning "$@"
)

cargo() {
  case "$1 $2" in
    "xtask envoy") echo envoy ;;
    "xtask experiment") isotherm-sim "${@:2}" ;;
    "xtask demo" | "xtask up" | "xtask compare" | "xtask validate" | "xtask soak") "$BIN/isotherm-demo" "${@:2}" --help >/dev/null ;;
    "xtask bench") bench "${@:3}" ;;
    "xtask profile") "$BIN/isotherm-profile" "${@:3}" --help >/dev/null ;;
    "xtask e2e") "$BIN/xtask" --help | grep -q "^  $2 " ;; # any word is a filter of test names
    xtask*) "$BIN/xtask" "${@:2}" --help >/dev/null ;;
    *) packages_exist "$@" ;;
  esac
}

bench() {
  case ${1-} in
    path | counts) "$BIN/isotherm-bench-$1" "${@:2}" --help >/dev/null ;;
    *) "$BIN/xtask" --help | grep -q "^  bench " ;; # Criterion's own arguments
  esac
}

# `cargo build`, `test` and `run` name packages of the workspace.
packages_exist() {
  while [ $# -gt 0 ]; do
    case $1 in
      -p | --package) command cargo pkgid --quiet --manifest-path "$ROOT/Cargo.toml" "$2" >/dev/null || return 1; shift ;;
    esac
    shift
  done
}

# Needs an account.
aws() { for argument in "$@"; do case $argument in file://*) test -f "${argument#file://}" ;; esac; done; }

# Need a release, a cluster, a registry, a server, or root. `cargo xtask install` installs a release.
pip() { case $1 in install | uninstall) ;; *) return 1 ;; esac; }
sudo() { "$@"; }
apt-get() { case $1 in install | purge) ;; *) return 1 ;; esac; }
dpkg() { case $1 in --print-architecture) echo amd64 ;; *) return 1 ;; esac; }
helm() { case $1 in install | upgrade | rollback | uninstall) ;; *) return 1 ;; esac; }
systemctl() { test -f "$ROOT/deploy/systemd/${!#}.service"; }
kubectl() { case $1 in scale) ;; *) return 1 ;; esac; }
oras() { case $1 in cp) ;; *) return 1 ;; esac; }
pg_dump() { case "$*" in *--file*) ;; *) return 1 ;; esac; }
pg_restore() { case "$*" in *--dbname*) ;; *) return 1 ;; esac; }
docker() { case "$1 $2" in "compose --file") test -f "$3" ;; *) return 1 ;; esac; }
skopeo() { case $1 in copy) ;; *) return 1 ;; esac; }
sha256sum() { case $1 in --check) ;; *) return 1 ;; esac; }
