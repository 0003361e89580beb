package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also a small wrapper (@wrap), the agents that the tests
// wrap (@play), a watch (@watch), and the shim.
func TestMain(m *testing.M) {
	switch {
	case IsShim(os.Args):
		os.Exit(ShimMain(os.Args))
	case len(os.Args) > 2 && os.Args[1] == "@wrap":
		os.Exit(wrapMain(os.Args[2:]))
	case len(os.Args) > 2 && os.Args[1] == "@play":
		os.Exit(playMain(os.Args[2:]))
	case len(os.Args) > 4 && os.Args[1] == "@watch":
		os.Exit(watchMain(os.Args[2], os.Args[3], os.Args[4]))
	}
	// With the race detector each process would sleep for a second at its end.
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	// Whoever started the tests may ignore signals (nohup): what they start
	// begins as from a terminal all the same.
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	os.Exit(m.Run())
}

// wrapMain is what aep-wrap does with an agent, and nothing else. Of its own
// words, which come first: tee=FILE, log=FILE, panic=FILE (when that is there).
func wrapMain(args []string) int {
	spec := Spec{Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	defer RestoreTerminal()
	crash := ""
	for len(args) > 0 {
		word, value, _ := strings.Cut(args[0], "=")
		switch word {
		case "tee":
			f, err := os.Create(value)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			spec.TeeStdout = f
		case "log":
			f, err := os.OpenFile(value, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			spec.Log = slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug}))
		case "panic":
			crash = value
		case "--":
			args = args[1:]
			fallthrough
		default:
			path, err := LookPath(args[0], os.Getenv("PATH"))
			if err == nil {
				spec.Path, spec.Args = path, args
				var p *Process
				if p, err = Start(spec); err == nil {
					if crash != "" {
						go crashAt(crash)
					}
					return Reraise(p.Wait())
				}
			}
			fmt.Fprintln(os.Stderr, "wrap:", err)
			var l *LaunchError
			if errors.As(err, &l) {
				return l.ExitCode()
			}
			return 1
		}
		args = args[1:]
	}
	return 2
}

// crashAt panics once a file is there.
func crashAt(file string) {
	for {
		if _, err := os.Stat(file); err == nil {
			panic("as told")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// playMain are agents with one habit each.
func playMain(args []string) int {
	num := func(i int) int {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			panic(err)
		}
		return n
	}
	raw := func() {
		t, err := unix.IoctlGetTermios(0, getTermios)
		if err != nil {
			panic(err)
		}
		r := makeRaw(*t)
		if err := unix.IoctlSetTermios(0, setTermios, &r); err != nil {
			panic(err)
		}
	}
	switch args[0] {
	case "echo-hex": // N: reads N raw bytes and prints them in hex
		raw()
		fmt.Print("ready.")
		b := make([]byte, num(1))
		if _, err := io.ReadFull(os.Stdin, b); err != nil {
			panic(err)
		}
		fmt.Printf("<%x>", b)
	case "all-bytes": // writes every byte value
		raw()
		b := make([]byte, 256)
		for i := range b {
			b[i] = byte(i)
		}
		os.Stdout.WriteString("BEGIN")
		os.Stdout.Write(b)
		os.Stdout.WriteString("END")
	case "flood": // N: writes N bytes that floodByte gives
		if isTerminal(1) {
			raw()
		}
		buf := make([]byte, 0, 64<<10)
		for i, n := 0, num(1); i < n; i++ {
			if buf = append(buf, floodByte(i)); len(buf) == cap(buf) || i == n-1 {
				if _, err := os.Stdout.Write(buf); err != nil {
					return 3
				}
				buf = buf[:0]
			}
		}
	case "late-word": // says something once nobody reads it
		out := waitFD{fd: 1}
		_ = waitFDs(patience, &out)
		_, _ = os.Stdout.WriteString("a\n")
	case "sizes": // tells the size now and at each change
		ch := make(chan os.Signal, 8)
		signal.Notify(ch, syscall.SIGWINCH)
		for {
			ws, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
			if err != nil {
				return 1
			}
			fmt.Printf("size=%dx%d/%dx%d.\n", ws.Col, ws.Row, ws.Xpixel, ws.Ypixel)
			select {
			case <-ch:
			case <-time.After(patience):
				return 1
			}
		}
	case "settings": // prints the terminal's settings
		t, err := unix.IoctlGetTermios(0, getTermios)
		if err != nil {
			panic(err)
		}
		fmt.Printf("settings=%+v.\n", *t)
	case "tui": // suspends as a TUI does: raw, a key, its whole group
		for {
			saved, _ := unix.IoctlGetTermios(0, getTermios)
			raw()
			fmt.Print("\x1b[?1049h\x1b[?2004hui-on.")
			b := make([]byte, 1)
			for b[0] != 0x1a && b[0] != 'q' {
				if _, err := os.Stdin.Read(b); err != nil {
					return 4
				}
				if b[0] != 0x1a {
					fmt.Printf("key=%x.", b)
				}
			}
			fmt.Print("\x1b[?2004l\x1b[?1049lui-off.")
			_ = unix.IoctlSetTermios(0, setTermios, saved)
			if b[0] == 'q' {
				return 0
			}
			cont := make(chan os.Signal, 1)
			signal.Notify(cont, syscall.SIGCONT)
			_ = syscall.Kill(0, syscall.SIGTSTP)
			<-cont
			fmt.Print("back.")
		}
	case "report": // tells signals by name, until one of TERM
		ch := make(chan os.Signal, 16)
		signal.Notify(ch, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
		say("ready.")
		for {
			select {
			case s := <-ch:
				say("got %v.", s)
				if s == syscall.SIGTERM {
					return 42
				}
			case <-time.After(patience):
				return 1
			}
		}
	case "mess": // leaves every mode on, and hangs
		raw()
		fmt.Print("\x1b[?1049h\x1b[>1u\x1b[?1000;1006h\x1b[?2004h\x1b[?25l\x1b[31mmess.")
		time.Sleep(patience)
	case "hup-file": // FILE: writes there what SIGHUP does to it
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGHUP)
		fmt.Print("ready.")
		select {
		case <-ch:
			_, err := os.Stdout.WriteString("x")
			_ = os.WriteFile(args[1], fmt.Appendf(nil, "hup, then %v", errors.Is(err, syscall.EIO)), 0o600)
			return 5
		case <-time.After(patience):
			return 1
		}
	default:
		panic("no such agent: " + args[0])
	}
	return 0
}

// say prints on stderr where that is all that is left to see, else on stdout.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func floodByte(i int) byte { return byte(uint32(i) * 2654435761 >> 13) }
