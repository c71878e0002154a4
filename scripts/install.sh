#!/bin/sh
# Installs the command sandbox on Linux or macOS.
#
#   curl -fsSL https://github.com/sandbox-lease/terraform-provider-sandbox/releases/latest/download/install.sh | sh
#   sh install.sh [--version VERSION] [--dir DIR] [--name NAME] [--key FILE] [--from URL]
#
#   --version  release to install, such as 0.1.0; default: the newest
#   --dir      directory to install into; default: /usr/local/bin for root, else ~/.local/bin
#   --name     name of the command; default: sandbox, or sbl where another program has that name
#   --key      public key of the releases, to verify the signature with gpg
#   --from     URL of the directory of a release, such as a mirror's; needs --version
#
# It needs curl, tar, and sha256sum or shasum. It changes nothing before the checksum and, with --key, the signature
# are verified.
set -eu

repository=https://github.com/sandbox-lease/terraform-provider-sandbox

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

# ours reports whether a program is this one, without running it.
ours() {
	grep -q github.com/sandbox-lease/terraform-provider-sandbox "$1" 2>/dev/null
}

main() {
	version='' dir='' name='' key='' from=''
	while [ $# -gt 0 ]; do
		[ $# -gt 1 ] || fail "$1 needs a value; the options are --version, --dir, --name, --key and --from"
		case $1 in
		--version) version=${2#v} ;;
		--dir) dir=$2 ;;
		--name) name=$2 ;;
		--key) key=$2 ;;
		--from) from=${2%/} ;;
		*) fail "unknown option $1; the options are --version, --dir, --name, --key and --from" ;;
		esac
		shift 2
	done

	case $(uname -s) in
	Linux) system=linux ;;
	Darwin) system=darwin ;;
	*) fail "there is no build for $(uname -s) here; Windows: download the zip from $repository/releases" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail "there is no build for $(uname -m): build it from source, as the README says" ;;
	esac
	for program in curl tar; do
		command -v $program >/dev/null || fail "$program is missing: install it first"
	done

	if [ -z "$version" ]; then
		[ -z "$from" ] || fail "--from needs --version"
		latest=$(curl -fsSL -o /dev/null -w '%{url_effective}' $repository/releases/latest) ||
			fail "the newest release cannot be found at $repository/releases: name one with --version"
		version=${latest##*/tag/v}
		[ "$version" != "$latest" ] || fail "there is no release at $repository/releases yet: build from source"
	fi
	[ -n "$from" ] || from=$repository/releases/download/v$version
	if [ -z "$dir" ]; then
		if [ "$(id -u)" = 0 ]; then dir=/usr/local/bin; else dir=$HOME/.local/bin; fi
	fi
	if [ -z "$name" ]; then
		name=sandbox
		for other in "$dir/sandbox" "$(command -v sandbox || true)"; do
			if [ -f "$other" ] && ! ours "$other"; then
				name=sbl
				echo "$other is another program, such as SELinux's: the command is installed as sbl" >&2
				break
			fi
		done
	fi

	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	archive=sandbox_${version}_${system}_$arch.tar.gz
	sums=sandbox_${version}_SHA256SUMS
	for file in "$sums" "$archive"; do
		curl -fsSL -o "$work/$file" "$from/$file" || fail "download $from/$file: failed; does release $version exist?"
	done

	if [ -n "$key" ]; then
		command -v gpg >/dev/null || fail "--key needs gpg: install it, or leave --key out"
		curl -fsSL -o "$work/$sums.sig" "$from/$sums.sig" || fail "download $from/$sums.sig: failed; is the release signed?"
		mkdir -m 0700 "$work/gnupg"
		gpg --homedir "$work/gnupg" --batch --quiet --no-autostart --import "$key" ||
			fail "$key has no public key that gpg can read"
		gpg --homedir "$work/gnupg" --batch --quiet --no-autostart --trust-model always --verify "$work/$sums.sig" "$work/$sums" ||
			fail "the signature of $sums is not by the key in $key: nothing is installed"
	fi
	(
		cd "$work"
		grep "^[0-9a-f]* [ *]$archive\$" "$sums" >expected || fail "$sums does not name $archive: nothing is installed"
		if command -v sha256sum >/dev/null; then
			sha256sum -c expected >/dev/null
		else
			shasum -a 256 -c expected >/dev/null
		fi || fail "the checksum of $archive is wrong: nothing is installed"
		tar -xzf "$archive" sandbox
	)

	mkdir -p "$dir"
	# A running program cannot be overwritten, but another file can replace its name.
	cp "$work/sandbox" "$dir/.$name.new"
	chmod 0755 "$dir/.$name.new"
	mv -f "$dir/.$name.new" "$dir/$name"
	echo "sandbox $version is installed as $dir/$name"
	[ -n "$key" ] || echo "Its checksum is verified, its signature is not: --key does that, or gh attestation verify."
	case :$PATH: in
	*:"$dir":*) ;;
	*) echo "Add $dir to PATH." ;;
	esac
}

main "$@" # only once all of it has arrived
