package doctor

import "golang.org/x/sys/unix"

// NetworkFS names the network file system path is on, or gives "".
func NetworkFS(path string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", err
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		return unix.ByteSliceToString(st.Fstypename[:]), nil
	}
	return "", nil
}
