# To be sourced: `use_suite sid` defines `suite_apt`, an apt-get that knows that suite of Debian alone, and leaves the
# system's own lists and packages as they are. Its files are in "$state", which is removed at the end.

use_suite() {
    state=$(mktemp -d)
    trap 'rm -rf "$state"' EXIT
    mkdir -p "$state"/{lists,archives}/partial
    touch "$state/status"
    local mirror key=/usr/share/keyrings/debian-archive-keyring.gpg
    mirror=$(grep -rhoE 'https?://[^ ]*/debian(/|$| )' /etc/apt | grep -vE 'security|snapshot' | head -n 1 | tr -d ' ' || true)
    for kind in deb deb-src; do
        echo "$kind [signed-by=$key] ${mirror:-https://deb.debian.org/debian} $1 main" >>"$state/sources.list"
    done
    suite_apt update
}

suite_apt() {
    apt-get -q -o Dir::State="$state" -o Dir::State::status="$state/status" -o Dir::State::lists="$state/lists" \
        -o Dir::Cache::archives="$state/archives" -o Dir::Etc::sourcelist="$state/sources.list" \
        -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root "$@" >&2
}
