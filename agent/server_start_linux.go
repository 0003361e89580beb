package agent

import "syscall"

func endWithUs(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
