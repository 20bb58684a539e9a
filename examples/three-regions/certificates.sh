#!/usr/bin/env bash
# Certificates for regions: one private authority, and one certificate for each region, which both its Envoy and its
# services show to the others, as client and as server.
#
#   certificates.sh [FOLDER [REGION...]]      default: the folder of this script, us eu asia
#
# Writes
#   FOLDER/authority/ca.pem, ca.key           made once, then kept; the key belongs on no machine that serves
#   FOLDER/REGION/tls/region.pem, region.key  made anew by every call
#   FOLDER/REGION/tls/ca.pem                  a copy of the authority's certificate, which REGION trusts
#
# Call it again, for all regions or for one, to replace certificates while everything runs: a region's three files change
# at once, and Envoy and the services read them again. With an authority of your own, what counts is: DNS name
# REGION.isotherm as subject alternative name, extended key usage clientAuth and serverAuth.
set -euo pipefail
umask 077

days_of_the_authority=3650
days_of_a_region=90

folder=${1:-$(dirname "$0")}
shift || true
regions=("$@")
[ ${#regions[@]} -gt 0 ] || regions=(us eu asia)

authority=$folder/authority
mkdir -p "$authority"
work=$(mktemp -d "$authority/new.XXXXXX")
trap 'rm -rf "$work"' EXIT

key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc)

if [ ! -e "$authority/ca.key" ]; then
  openssl req -x509 "${key[@]}" -keyout "$work/ca.key" -out "$work/ca.pem" \
    -days $days_of_the_authority -subj "/CN=Isotherm regions" \
    -addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign" 2>"$work/log" ||
    { cat "$work/log" >&2; exit 1; }
  mv "$work/ca.pem" "$authority/ca.pem"
  mv "$work/ca.key" "$authority/ca.key"
fi

for region in "${regions[@]}"; do
  if ! [[ $region =~ ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$ ]]; then
    echo "$region is no name of a region: small letters, digits and hyphens" >&2
    exit 1
  fi
  cat >"$work/extensions" <<EXTENSIONS
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = DNS:$region.isotherm
EXTENSIONS
  { openssl req -new "${key[@]}" -keyout "$work/region.key" -out "$work/region.csr" -subj "/CN=$region" &&
    openssl x509 -req -in "$work/region.csr" -CA "$authority/ca.pem" -CAkey "$authority/ca.key" \
      -set_serial "0x$(openssl rand -hex 16)" -days $days_of_a_region -extfile "$work/extensions" -out "$work/region.pem"; } \
    2>"$work/log" || { cat "$work/log" >&2; exit 1; }

  # The three files are links through ..data, which one rename replaces: every reader sees all of them change at once.
  # Kubernetes mounts a secret the same way.
  tls=$folder/$region/tls
  mkdir -p "$tls"
  old=$(readlink "$tls/..data" || true)
  new=$(mktemp -d "$tls/..XXXXXX")
  cp "$work/region.key" "$work/region.pem" "$authority/ca.pem" "$new"
  ln -sfn "${new##*/}" "$tls/..data.new"
  mv -T "$tls/..data.new" "$tls/..data"
  for file in region.key region.pem ca.pem; do
    [ -L "$tls/$file" ] || { ln -sfn "..data/$file" "$tls/$file.new" && mv -T "$tls/$file.new" "$tls/$file"; }
  done
  [ -z "$old" ] || rm -rf "${tls:?}/$old"
  echo "$tls/region.pem: $region.isotherm, $(openssl x509 -noout -enddate -in "$tls/region.pem")"
done
