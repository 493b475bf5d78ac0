//go:build tools

// Package tools pins the registry of the local parts; nothing imports it.
package tools

import _ "github.com/distribution/distribution/v3/cmd/registry"
