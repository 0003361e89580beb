// Command collector is a load generator for any AEP endpoint: it measures what
// taking events in, fanning them out and replaying them cost, over the wire
// alone, so that two endpoints can be set side by side.
//
//	go run ./bench/collector -url http://127.0.0.1:8787 -token "$(aep-wrap token show)" -pid PID
//
// With -pid, the endpoint's process on this machine, it tells processor time
// and memory too. Beside the figures stand floors from the same run: the same
// requests to a server that does nothing, one write to a TCP connection, one
// scan of an event's JSON. It must not know an endpoint's inside.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench/collector:", err)
		os.Exit(1)
	}
}

// config is what to measure, and for how long.
type config struct {
	url, token  string
	pid         int
	length      time.Duration
	only        string
	asJSON      bool
	subscribers int
	idle        int
}

func run(args []string, out io.Writer) error {
	var c config
	fs := flag.NewFlagSet("collector", flag.ContinueOnError)
	fs.StringVar(&c.url, "url", "", "the endpoint's origin (http only)")
	fs.StringVar(&c.token, "token", "", "bearer token")
	fs.IntVar(&c.pid, "pid", 0, "the endpoint's process on this machine: tells processor time and memory")
	fs.DurationVar(&c.length, "time", 5*time.Second, "how long each measurement loads the endpoint")
	fs.StringVar(&c.only, "only", "", "names of measurements, with commas between them: "+strings.Join(names(), ", "))
	fs.BoolVar(&c.asJSON, "json", false, "one JSON object a line")
	fs.IntVar(&c.subscribers, "subscribers", 100, "of the fan-out, half of which match")
	fs.IntVar(&c.idle, "idle", 500, "subscribers without traffic, of the memory")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if c.url == "" {
		return fmt.Errorf("want -url, the endpoint's origin, such as http://127.0.0.1:8787")
	}
	tell := func(f figure) {
		if c.asJSON {
			raw, _ := json.Marshal(f)
			fmt.Fprintf(out, "%s\n", raw)
			return
		}
		fmt.Fprintln(out, f)
	}
	for _, m := range measurements {
		if c.only != "" && !slices.Contains(strings.Split(c.only, ","), m.name) {
			continue
		}
		target, err := dialTarget(c)
		if err != nil {
			return err
		}
		figures, err := m.measure(target)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		for _, f := range figures {
			f.Name = m.name + " " + f.Name
			tell(f)
		}
	}
	return nil
}

// figure is one result.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func (f figure) String() string {
	format := "%-44s %12.0f %s"
	if f.Value < 100 {
		format = "%-44s %12.2f %s"
	}
	return fmt.Sprintf(format, f.Name, f.Value, f.Unit)
}

// measurement is one thing that is measured.
type measurement struct {
	name    string
	measure func(*target) ([]figure, error)
}

// measurements, in the order in which they are made: memory first, as long as
// the endpoint holds little.
var measurements = []measurement{
	{"memory", memory},
	{"floor", floors},
	{"post-1000x1", func(t *target) ([]figure, error) { return posting(t, 1, 1000) }},
	{"post-1x8", func(t *target) ([]figure, error) { return posting(t, 8, 1) }},
	{"latency", latency},
	{"fan-out", fanOut},
	{"ws-emit", wsEmit},
	{"control", control},
	{"replay", replay},
}

func names() (out []string) {
	for _, m := range measurements {
		out = append(out, m.name)
	}
	return out
}
