package session

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/conchsh/conch/internal/sock"
)

// removeRunFiles removes what the dead keeper of a session had outside the
// session's directory, and nothing else: only names that a keeper of this home
// would have used, whatever its record says.
func removeRunFiles(home, id string) error {
	run, mem := filepath.Join(home, "run"), sock.MemoryPath(home)
	return errors.Join(
		remove(filepath.Join(run, id+".sock")),
		os.RemoveAll(filepath.Join(run, id+".d")),
		remove(filepath.Join(mem, id+".sock")),
		os.RemoveAll(filepath.Join(mem, id)),
	)
}

// ownSocket reports whether path is where a keeper of this home listens.
func ownSocket(home, id, path string) bool {
	return path == filepath.Join(home, "run", id+".sock") || path == filepath.Join(sock.MemoryPath(home), id+".sock")
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	return nil
}
