//go:build !linux

package sandbox

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/conchsh/conch"
)

// A Box cannot be made here.
type Box struct{ PID int }

func unsupported() error {
	return conch.Errorf(conch.Unsupported, "sessions cannot be sandboxed on %s", runtime.GOOS).
		Hint("a sandbox needs the namespaces of Linux; leave --sandbox off, or run conch in a virtual machine")
}

func Start(Config) (*Box, error)   { return nil, unsupported() }
func Probe(string) (string, error) { return "", unsupported() }
func Init() int                    { return 1 }

func (b *Box) ForkExec(string, []string, *syscall.ProcAttr) (int, error) { return 0, unsupported() }
func (b *Box) Dir(string) error                                          { return unsupported() }
func (b *Box) Stat(string, *unix.Stat_t) error                           { return unsupported() }
func (b *Box) Root() int                                                 { return -1 }
func (b *Box) Holds() bool                                               { return false }
func (b *Box) Close()                                                    {}
