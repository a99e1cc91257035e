package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// serve answers HTTP until a signal:
//
//	/                              "testserver"
//	/env                           the environment, one variable a line
//	/healthz                       200, or 503 after /healthz/fail
//	/healthz/ok, /healthz/fail     change that answer
func serve(args []string, signals <-chan os.Signal) (int, error) {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	addr := flags.String("http", ":8080", "address")
	delay := flags.Duration("term-delay", 0, "go on for this long after SIGTERM")
	code := flags.Int("term-exit", 0, "exit code after SIGTERM")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return 0, err
	}
	fmt.Println("listening on", listener.Addr())
	server := &http.Server{Handler: newHandler(), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()

	select {
	case err := <-failed:
		return 0, err
	case s := <-signals:
		fmt.Println("signal", s)
		// The server goes on meanwhile, as one that drains would.
		rest(*delay, nil, false)
		lastWords("ended by " + s.String())
		fmt.Println("exit", *code)
		return *code, nil
	}
}

func newHandler() http.Handler {
	var unhealthy atomic.Bool
	mux := http.NewServeMux()
	say := func(pattern string, text func() string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, text()+"\n") // if the client has gone there is nobody to tell
		})
	}
	say("/{$}", func() string { return "testserver" })
	say("/env", func() string { return strings.Join(os.Environ(), "\n") })
	say("/healthz/ok", func() string { unhealthy.Store(false); return "now ok" })
	say("/healthz/fail", func() string { unhealthy.Store(true); return "now failing" })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if unhealthy.Load() {
			http.Error(w, "told to fail", http.StatusServiceUnavailable)
		}
	})
	return mux
}
