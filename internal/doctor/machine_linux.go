package doctor

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// checkSubreaper asks whether the kernel gives orphans to an ancestor that
// wants them; a keeper becomes one.
func checkSubreaper() Check {
	var on int32
	if err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&on)), 0, 0, 0); err != nil {
		return bad("subreaper", "a kernel from 3.4 on has it", "%v", err)
	}
	return good("subreaper", "available")
}
