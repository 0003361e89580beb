package main

import (
	"bufio"
	"fmt"
	"os"

	"aep-wrap/event"
)

// showTimeline prints a session's log, one event a line.
func (a *app) showTimeline(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 32<<20)
	for sc.Scan() {
		e, err := event.Parse(sc.Bytes())
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Stdout, "%s  %-28s %s\n", e.Time.Local().Format("15:04:05.000"), e.Type, e.Subject)
	}
	return sc.Err()
}
