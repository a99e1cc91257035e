// Command registry serves image-layout tars, read only, as an image registry on a loopback
// address, so that tests use real pulls.
//
//	registry -dir /path/with/tars -addr-file FILE [-lock REPOSITORY=USER:PASSWORD]...
//
// It serves the tars below -dir under their names without the registry host:
// kubeparts.test/busybox:1 as busybox:1, for any host that the client requests. It listens on
// a free port and writes its address to -addr-file. A repository with a -lock requires basic
// authentication with this user and password.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	dir := flag.String("dir", ".", "directory with image-layout tars")
	addrFile := flag.String("addr-file", "", "file for the address")
	locks := map[string]login{}
	flag.Func("lock", "REPOSITORY=USER:PASSWORD, a repository that requires this user and password", func(s string) error {
		return addLock(locks, s)
	})
	flag.Parse()
	if err := run(*dir, *addrFile, locks); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func run(dir, addrFile string, locks map[string]login) error {
	c, err := load(dir)
	if err != nil {
		return err
	}
	log.Printf("%d blobs, tags %v", len(c.blobs), c.tags)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// The file is renamed after it is complete, because clients wait for the file and read it
	// at once.
	if err := os.WriteFile(addrFile+".new", []byte(listener.Addr().String()+"\n"), 0o600); err != nil {
		return err
	}
	if err := os.Rename(addrFile+".new", addrFile); err != nil {
		return err
	}
	server := &http.Server{Handler: locked{c, locks}, ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(listener)
}
