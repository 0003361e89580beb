package follow

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// remoteTypes are file systems in which others can write unannounced.
var remoteTypes = map[int64]bool{
	unix.NFS_SUPER_MAGIC: true, unix.SMB_SUPER_MAGIC: true, unix.SMB2_SUPER_MAGIC: true, unix.CIFS_SUPER_MAGIC: true,
	unix.FUSE_SUPER_MAGIC: true, unix.V9FS_MAGIC: true, unix.CEPH_SUPER_MAGIC: true, unix.AFS_SUPER_MAGIC: true, unix.CODA_SUPER_MAGIC: true,
}

func remote(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && remoteTypes[int64(uint32(st.Type))]
}

func outOfWatches(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EMFILE)
}

func watches() string { return "fs.inotify.max_user_watches is " + sysctl("max_user_watches") }

func instances() string {
	return "; fs.inotify.max_user_instances is " + sysctl("max_user_instances")
}

func sysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/fs/inotify/" + name)
	if err != nil {
		return "not known"
	}
	return strings.TrimSpace(string(b))
}
