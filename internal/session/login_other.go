//go:build !linux

package session

import "syscall"

// loginAttributes cannot have the shell end with a daemon that was killed here.
func loginAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
