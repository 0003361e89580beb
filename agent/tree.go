package agent

import (
	"log/slog"
	"slices"
	"syscall"
	"time"
)

// Proc is one process as the kernel lists it. Pid and Start name it for good:
// a number is used again, a number and a start are not.
type Proc struct {
	Pid, Parent int
	Group       int
	Start       uint64
	State       byte // as in /proc: R, S, D, T, Z …
}

func (p Proc) id() procID    { return procID{p.Pid, p.Start} }
func (p Proc) stopped() bool { return p.State == 'T' || p.State == 't' }
func (p Proc) over() bool    { return p.State == 'Z' || p.State == 'X' }

type procID struct {
	pid   int
	start uint64
}

// descend gives the processes of all that root says yes to, and everything
// below them, parents before children. What is over is left out, but not what
// is below it.
func descend(all []Proc, root func(Proc) bool) []Proc {
	children := map[int][]Proc{}
	var queue []Proc
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
		if root(p) {
			queue = append(queue, p)
		}
	}
	seen := map[int]bool{}
	var out []Proc
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if seen[p.Pid] {
			continue
		}
		seen[p.Pid] = true
		if !p.over() {
			out = append(out, p)
		}
		queue = append(queue, children[p.Pid]...)
	}
	return out
}

// endAll ends what list names until it names nothing: SIGTERM, and SIGCONT so
// that what is stopped hears it, then after grace SIGKILL. Listing again each
// time is what finds a process that was forked while its parent died. It gives
// up two seconds after that, for what even SIGKILL does not end, and says what is
// left.
func endAll(list func() []Proc, grace time.Duration, log *slog.Logger) []Proc {
	begun := time.Now()
	var killed time.Time
	told := map[procID]bool{}
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		left := list()
		if len(left) == 0 {
			return nil
		}
		if !killed.IsZero() && time.Since(killed) > 2*time.Second {
			log.Warn("processes of the agent are still running", "pids", pids(left))
			return left
		}
		if killed.IsZero() && time.Since(begun) >= grace {
			killed = time.Now()
		}
		for _, p := range left {
			switch {
			case !killed.IsZero():
				_ = signalProc(p, syscall.SIGKILL)
			case !told[p.id()]:
				told[p.id()] = true
				_ = signalProc(p, syscall.SIGTERM)
				_ = signalProc(p, syscall.SIGCONT)
			}
		}
		time.Sleep(pause)
	}
}

func pids(procs []Proc) []int {
	out := make([]int, len(procs))
	for i, p := range procs {
		out[i] = p.Pid
	}
	return out
}

// freeze stops what list names until a listing shows nobody running, and gives
// those that it stopped: not those that were stopped before, which are not
// ours to wake. A parent stops before its children, so that it cannot see one
// stop; one that forked meanwhile is found by the next listing. It does not
// wait for ever: what sleeps in the kernel stops when it comes out of there. A
// parent that sleeps there until its child runs another program (vfork) would
// not, were the child stopped on its way: such a child goes on once, and is
// stopped again.
func freeze(list func() []Proc) (stopped []Proc) {
	told, woken := map[procID]bool{}, map[procID]bool{}
	deadline := time.Now().Add(time.Second)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		all := list()
		waits := map[int]bool{} // in the kernel
		for _, p := range all {
			waits[p.Pid] = p.State == 'D'
		}
		late := time.Now().After(deadline)
		runs, fresh := false, false
		for _, p := range all {
			id := p.id()
			switch onItsWay := waits[p.Parent] && !late; {
			case p.stopped() && onItsWay && told[id] && !woken[id]:
				runs, woken[id], told[id] = true, true, false
				_ = signalProc(p, syscall.SIGCONT)
			case p.stopped():
			case told[id], onItsWay && woken[id]:
				runs = true
			default:
				runs, fresh, told[id] = true, true, true
				if signalProc(p, syscall.SIGSTOP) == nil && !woken[id] {
					stopped = append(stopped, p)
				}
			}
		}
		if !runs || !fresh && late {
			return stopped
		}
		time.Sleep(pause)
	}
}

// thaw continues what freeze stopped, children first.
func thaw(stopped []Proc) {
	for _, p := range slices.Backward(stopped) {
		_ = signalProc(p, syscall.SIGCONT)
	}
}
