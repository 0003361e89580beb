package agent

import "syscall"

// endWithUs: the system has no word for it.
func endWithUs(*syscall.SysProcAttr) {}
