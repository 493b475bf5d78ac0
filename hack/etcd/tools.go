//go:build tools

// Package tools pins the etcd server of the local control plane; nothing imports it.
package tools

import _ "go.etcd.io/etcd/server/v3"
