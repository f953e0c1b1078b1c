package sock

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// memoryRoot is where run files go that should not touch a disk.
const memoryRoot = "/dev/shm"

// MemoryPath names the directory of home's run files in memory, without
// making it: /dev/shm/conch-<uid>-<hash of home>.
func MemoryPath(home string) string {
	sum := sha256.Sum256([]byte(home))
	return filepath.Join(memoryRoot, "conch-"+strconv.Itoa(os.Getuid())+"-"+hex.EncodeToString(sum[:6]))
}

// MemoryDir makes that directory and proves that it is ours: anybody may make
// names in /dev/shm. It fails where there is no such file system.
func MemoryDir(home string) (string, error) {
	dir := MemoryPath(home)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.IsDir() || int(st.Uid) != os.Getuid() || fi.Mode().Perm() != 0o700 {
		return "", fmt.Errorf("%s is not a private directory of ours", dir)
	}
	return dir, nil
}

// Path is where the socket called name of home goes: in run/, or in memory
// when that path is too long for the kernel.
func Path(home, name string) (string, error) {
	path := filepath.Join(home, "run", name)
	if len(path) <= MaxPath {
		return path, nil
	}
	dir, err := MemoryDir(home)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}
