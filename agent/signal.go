package agent

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A wrapper stands where the agent would stand, so a signal that was meant for
// the agent reaches the wrapper, and is passed on: each time it comes, and
// never turned into a stronger one, because an agent that ignores SIGTERM
// ignores it without us too.
//
// What reached the agent already is not passed on. Where the agent shares our
// process group that is what the terminal sends to its foreground group, and
// the sender of a signal is not to be seen from here; so SIGINT, SIGQUIT and
// SIGTSTP count as the terminal's while we are in its foreground, and SIGHUP
// does when the controlling terminal we had is gone. Everything else, and these
// in the background or without a terminal, was sent to us alone or to a whole
// group; the latter the agent then sees twice, as it does under timeout(1).
//
// On a PTY the agent is in no group of ours: all is passed on. What a terminal
// or a shell sends to a job (SIGINT, SIGQUIT, SIGHUP, SIGTSTP) goes to the
// agent's group, the rest to the agent alone.

// passedOn are the signals that the agent is meant to get, but for those that
// move a job.
var passedOn = append([]os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGVTALRM,
}, systemSignals...)

// caught collects the signals that reach this process while an agent runs.
type caught struct {
	ch chan os.Signal
	// cont is SIGCONT's: who suspended us takes the one that ended it.
	cont chan os.Signal
}

// catch begins to collect the given signals and SIGCONT, but for those that we
// were started with ignored (nohup): an ignored signal stays so, for us and for
// every child.
func catch(sigs ...os.Signal) *caught {
	c := &caught{ch: make(chan os.Signal, 64), cont: make(chan os.Signal, 1)}
	ignored := ignoring()
	for _, s := range sigs {
		if !ignored(s) {
			signal.Notify(c.ch, s)
		}
	}
	signal.Notify(c.cont, syscall.SIGCONT)
	return c
}

func (c *caught) stop() {
	signal.Stop(c.ch)
	signal.Stop(c.cont)
}

// suspend stops this process by sig as the agent was stopped, so that the
// shell sees its job stop: the whole process group where the terminal or a
// program in it would stop that (SIGTSTP, SIGTTIN, SIGTTOU), and us alone for a
// SIGSTOP. It returns once we were continued, or with false when nothing
// stopped us: the kernel discards SIGTSTP and its kin in a group that no shell
// looks after, and stops no PID 1.
func (c *caught) suspend(sig syscall.Signal, group bool) bool {
	select {
	case <-c.cont: // of another time
	default:
	}
	restore, ok := stopSelf(sig, group && sig != syscall.SIGSTOP)
	defer restore()
	if !ok {
		return false
	}
	// Time goes on while we are stopped, so the timer may win a race that is
	// over: give the news of the continuation a moment more.
	for _, patience := range []time.Duration{100 * time.Millisecond, 50 * time.Millisecond} {
		select {
		case <-c.cont:
			return true
		case <-time.After(patience):
		}
	}
	return false
}

// inForeground says whether this process's group is the foreground one of its
// controlling terminal; had is false when there is no such terminal.
func inForeground() (fg, had bool) {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, false
	}
	defer unix.Close(fd)
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp(), true
}
