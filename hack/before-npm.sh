#!/bin/sh
# Without npm there is no Node to look at the machine with (hack/parts/requirements.ts), so the shell says what is missing:
# npm, and what else cannot be installed by itself.
exec >&2
command -v npm >/dev/null && exit 0
echo "nothing can begin:"
echo "- npm is not installed and brings Node 24 and every library: install the Debian packages nodejs and npm."
command -v kubectl >/dev/null ||
  echo "- kubectl is not installed and is needed to talk to the cluster: install kubectl 1.31 or newer (package kubectl, or kubernetes-client of Debian 13)."
command -v go >/dev/null || [ -n "${KUBEBUILDER_ASSETS:-}" ] || ls "$HOME"/.cache/agent-worlds/*/kube-apiserver >/dev/null 2>&1 ||
  echo "- Go is not installed and is needed for compiling the control plane: install Go 1.26 or newer (Debian's golang-go from 1.21 on fetches that by itself)."
exit 1
