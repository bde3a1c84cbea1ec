// Programs with one known cause each: cases-go NAME.
package main

import (
	"os"
	"runtime"
	"sync"
	"time"
)

var sink []*[64]int
var sum int

func compute(n int) {
	for i := 0; i < n; i++ {
		sum += i * i
	}
}

func collect() {
	for i := 0; i < 300000; i++ {
		sink = append(sink, new([64]int))
	}
	for i := 0; i < 10; i++ {
		runtime.GC()
	}
}

func main() {
	pause := 600 * time.Millisecond
	switch os.Args[1] {
	case "compute":
		compute(400000000)
	case "sleep":
		time.Sleep(pause)
	case "collect":
		collect()
	case "channel":
		done := make(chan int)
		go func() { compute(400000000); done <- 1 }()
		<-done
	case "idle-pool":
		work := make(chan int)
		for i := 0; i < 8; i++ {
			go func() { <-work }()
		}
		compute(400000000)
	case "mutex":
		var lock sync.Mutex
		lock.Lock()
		go func() { time.Sleep(pause); lock.Unlock() }()
		lock.Lock()
	}
}
