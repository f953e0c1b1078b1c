package doctor

import (
	"bufio"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// File systems whose locks, sockets and pids belong to more than one machine.
// The numbers are the kernel's (linux/magic.h and the file systems' own).
func networkTypes() map[uint32]string {
	return map[uint32]string{
		unix.NFS_SUPER_MAGIC: "nfs",
		unix.SMB_SUPER_MAGIC: "smb",
		0xff534d42:           "cifs",
		0xfe534d42:           "smb2",
		unix.AFS_SUPER_MAGIC: "afs",
		unix.AFS_FS_MAGIC:    "afs",
		unix.V9FS_MAGIC:      "9p",
		0x00c36400:           "ceph",
		0x0bd00bd0:           "lustre",
		0x73757245:           "coda",
		0x564c:               "ncp",
		0x47504653:           "gpfs",
	}
}

const fuseMagic = 0x65735546

// networkFuse are network file systems that the kernel knows only as fuse.
var networkFuse = []string{"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.ceph", "fuse.curlftpfs", "fuse.davfs"}

// NetworkFS names the network file system path is on, or gives "".
func NetworkFS(path string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", err
	}
	kind := uint32(st.Type)
	if name := networkTypes()[kind]; name != "" {
		return name, nil
	}
	if kind != fuseMagic {
		return "", nil
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", nil // no proc: cannot tell one fuse from another
	}
	defer f.Close()
	if t := mountType(f, path); isNetworkFuse(t) {
		return t, nil
	}
	return "", nil
}

func isNetworkFuse(t string) bool {
	for _, n := range networkFuse {
		if t == n {
			return true
		}
	}
	return false
}

// mountType finds, in the form of proc_pid_mountinfo(5), the type of the file
// system that path is on: the last mount whose point is its longest prefix.
func mountType(mountinfo io.Reader, path string) string {
	best, bestLen := "", -1
	for sc := bufio.NewScanner(mountinfo); sc.Scan(); {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		if !ok {
			continue
		}
		f, t := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(t) < 1 {
			continue
		}
		point := unescapeMount(f[4])
		if point != "/" && path != point && !strings.HasPrefix(path, point+"/") {
			continue
		}
		if len(point) >= bestLen {
			best, bestLen = t[0], len(point)
		}
	}
	return best
}

// unescapeMount undoes the kernel's octal escapes for space, tab, newline and
// backslash.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
