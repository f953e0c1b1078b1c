package doctor

import (
	"strings"
	"testing"
)

func TestMountType(t *testing.T) {
	const info = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /home/me/my\040mount rw,nosuid shared:2 - fuse.sshfs host:/ rw
41 40 0:36 / /home/me/my\040mount/in rw - tmpfs tmpfs rw
42 22 0:37 / /mnt rw - ext4 /dev/sdb rw
43 22 0:38 / /mnt rw - fuse.glusterfs x rw
`
	for path, want := range map[string]string{
		"/home/me":              "ext4",
		"/home/me/my mount":     "fuse.sshfs",
		"/home/me/my mount/x/y": "fuse.sshfs",
		"/home/me/my mountain":  "ext4",
		"/home/me/my mount/in":  "tmpfs",
		"/mnt/x":                "fuse.glusterfs",
	} {
		if got := mountType(strings.NewReader(info), path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if !isNetworkFuse("fuse.sshfs") || isNetworkFuse("fuse.gocryptfs") {
		t.Error("fuse types")
	}
}
