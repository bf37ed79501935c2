// The kubelet's side of the device plugin API, by the module that the kubelet itself is built with.
//
// Every command prints JSON, one object a line; times are nanoseconds of CLOCK_MONOTONIC, which other processes of the machine share.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

var commands = map[string]func([]string) error{
	"kubelet":  standIn,
	"allocate": timeAllocate,
	"start":    timeStart,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: client kubelet|allocate|start ...")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

// row is one printed object.
type row map[string]any

var printing sync.Mutex

func say(what row) {
	printing.Lock()
	defer printing.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

// now returns nanoseconds of the clock that Python's time.monotonic_ns reads.
func now() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}
