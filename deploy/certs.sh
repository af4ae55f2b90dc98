#!/usr/bin/env bash
# Makes an authority, a server and a client certificate: deploy/certs.sh FOLDER [SERVER_NAME...]
# A name may be an address.
set -euo pipefail
if [[ $# -lt 1 ]]; then
  echo "usage: certs.sh FOLDER [SERVER_NAME...]; names default to localhost and 127.0.0.1" >&2
  exit 2
fi
folder=$1
shift
names=("${@:-localhost}")
umask 077
mkdir -p "$folder"
cd "$folder"

san="IP:127.0.0.1"
for name in "${names[@]}"; do
  if [[ $name =~ ^[0-9.]+$|: ]]; then san+=",IP:$name"; else san+=",DNS:$name"; fi
done

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
  -subj "/CN=lumotree authority" -keyout ca.key -out ca.pem 2>/dev/null

issue() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
    -subj "/CN=$2" -keyout "$1.key" -out "$1.csr" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 \
    -extfile <(printf '%s\n' "$3") -out "$1.pem" 2>/dev/null
  rm "$1.csr"
}

issue server "${names[0]}" "subjectAltName=$san
extendedKeyUsage=serverAuth"
issue client "lumotree client" "extendedKeyUsage=clientAuth"
echo "wrote ca.pem server.pem server.key client.pem client.key to $folder"
