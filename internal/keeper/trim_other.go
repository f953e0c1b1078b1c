//go:build !linux

package keeper

import "runtime/debug"

// trim gives back the memory an idle keeper does not need.
func trim() { debug.FreeOSMemory() }
