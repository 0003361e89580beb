// Command mockmodel serves the scripted model on loopback, for trying an agent
// by hand: mockmodel [-listen ADDR] [-dir DIR]. It prints the address to set as
// ANTHROPIC_BASE_URL and serves until it is stopped.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sort"
	"strings"
	"time"

	"aep-wrap/testdata/mockmodel"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "loopback address to serve on")
	dir := flag.String("dir", ".", "the directory the agent works in")
	flag.Parse()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mockmodel:", err)
		os.Exit(1)
	}
	names := mockmodel.Scripts()
	sort.Strings(names)
	fmt.Printf("ANTHROPIC_BASE_URL=http://%s\nscripts: %s\n", l.Addr(), strings.Join(names, " "))
	srv := &http.Server{Handler: mockmodel.New(*dir), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, "mockmodel:", srv.Serve(l))
	os.Exit(1)
}
