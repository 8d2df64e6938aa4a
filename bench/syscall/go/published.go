// SPDX-License-Identifier: MIT

// Published repeats the two loops in Go for which the Jiny kernel's notes give figures. `make
// selfbench` runs it beside klat's programs:
//
//	published write COUNT                 COUNT writes of 30 bytes to /dev/null
//	published channels ROUNDS ADDITIONS   requests and answers, with 50 goroutines in each round
//
// It prints nanoseconds per write or request. A published request makes 1,000 additions. With 0
// additions only the channels remain.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

const goroutines = 50

func write(count int) (int, error) {
	null, err := os.Create(os.DevNull)
	if err != nil {
		return 0, err
	}
	message := make([]byte, 30)
	for i := 0; i < count; i++ {
		if _, err := null.Write(message); err != nil {
			return 0, err
		}
	}
	return count, null.Close()
}

func serve(in <-chan int, out chan<- int, additions int) {
	for request := range in {
		sum := 0
		for i := 0; i < additions; i++ {
			sum += request
		}
		out <- sum
	}
}

// All requests of a round are sent before the first answer is taken.
func channels(rounds, additions int) (int, error) {
	var in, out [goroutines]chan int

	for g := range in {
		in[g], out[g] = make(chan int), make(chan int)
		go serve(in[g], out[g], additions)
	}
	for round := 0; round < rounds; round++ {
		for _, channel := range in {
			channel <- round
		}
		for _, channel := range out {
			if answer := <-channel; answer != round*additions {
				return 0, fmt.Errorf("%d instead of %d", answer, round*additions)
			}
		}
	}
	return rounds * goroutines, nil
}

func run(arguments []string) (int, error) {
	numbers := make([]int, 0, 2)
	for _, text := range arguments[1:] {
		number, err := strconv.Atoi(text)
		if err != nil || number < 0 {
			return 0, fmt.Errorf("'%s' is no count", text)
		}
		numbers = append(numbers, number)
	}
	switch {
	case arguments[0] == "write" && len(numbers) == 1:
		return write(numbers[0])
	case arguments[0] == "channels" && len(numbers) == 2:
		return channels(numbers[0], numbers[1])
	}
	return 0, fmt.Errorf("write COUNT or channels ROUNDS ADDITIONS")
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "published: write COUNT or channels ROUNDS ADDITIONS")
		os.Exit(2)
	}
	begun := time.Now()
	count, err := run(os.Args[1:])
	taken := time.Since(begun)
	if err != nil || count == 0 {
		fmt.Fprintln(os.Stderr, "published:", err)
		os.Exit(1)
	}
	fmt.Printf("%.1f\n", float64(taken.Nanoseconds())/float64(count))
}
