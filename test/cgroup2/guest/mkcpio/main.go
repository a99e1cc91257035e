// Command mkcpio writes an uncompressed initramfs archive ("newc") from files.
//
//	mkcpio -o OUT [-modules TREE -load a,b] DST=SRC... DST=dir: DST=link:TARGET
//
// If SRC is a directory, the archive contains everything below it. The archive does not
// depend on the time or on the machine. -load adds the named kernel modules of TREE and their
// dependencies. /modules.list in the archive contains their paths in the order in which they
// must be loaded.
package main

import (
	"bufio"
	"debug/elf"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

type archive struct {
	w    *bufio.Writer
	pos  int64
	ino  int
	dirs map[string]bool
}

func (a *archive) write(b []byte) {
	n, err := a.w.Write(b)
	if err != nil {
		log.Fatal(err)
	}
	a.pos += int64(n)
}

func (a *archive) pad() {
	for a.pos%4 != 0 {
		a.write([]byte{0})
	}
}

func (a *archive) header(name string, mode uint32, size int64) {
	a.ino++
	a.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.ino, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0))
	a.write(append([]byte(name), 0))
	a.pad()
}

func (a *archive) dir(name string) {
	name = strings.Trim(path.Clean("/"+name), "/")
	if name == "" || a.dirs[name] {
		return
	}
	a.dir(path.Dir(name))
	a.dirs[name] = true
	a.header(name, 0o040755, 0)
}

func (a *archive) bytes(name string, mode uint32, b []byte) {
	name = strings.Trim(path.Clean("/"+name), "/")
	a.dir(path.Dir(name))
	a.header(name, mode, int64(len(b)))
	a.write(b)
	a.pad()
}

func (a *archive) file(name, src string) {
	fi, err := os.Stat(src)
	if err != nil {
		log.Fatal(err)
	}
	if fi.IsDir() {
		a.dir(name)
		err := filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
			if err != nil || p == src {
				return err
			}
			rel, _ := filepath.Rel(src, p)
			to := path.Join(name, filepath.ToSlash(rel))
			switch {
			case d.IsDir():
				a.dir(to)
			case d.Type()&fs.ModeSymlink != 0:
				t, err := os.Readlink(p)
				if err != nil {
					return err
				}
				a.bytes(to, 0o120777, []byte(t))
			case d.Type().IsRegular():
				a.file(to, p)
			}
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	name = strings.Trim(path.Clean("/"+name), "/")
	a.dir(path.Dir(name))
	f, err := os.Open(src)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	a.header(name, 0o100000|uint32(fi.Mode().Perm()), fi.Size())
	n, err := io.Copy(a.w, f)
	if err != nil || n != fi.Size() {
		log.Fatalf("%s: %d of %d bytes: %v", src, n, fi.Size(), err)
	}
	a.pos += n
	a.pad()
}

// modules adds the named modules and their dependencies.
func (a *archive) modules(tree string, names []string) {
	at := map[string]string{}
	err := filepath.WalkDir(tree, func(p string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(d.Name(), ".ko"); ok {
			at[strings.ReplaceAll(name, "-", "_")] = p
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	var list []string
	seen := map[string]bool{}
	var add func(string)
	add = func(n string) {
		n = strings.ReplaceAll(n, "-", "_")
		if seen[n] {
			return
		}
		seen[n] = true
		p := at[n]
		if p == "" {
			log.Printf("module %s not found; it may be built into the kernel", n)
			return
		}
		for _, d := range needs(p) {
			add(d)
		}
		to := "/modules/" + n + ".ko"
		a.file(to, p)
		list = append(list, to)
	}
	for _, n := range names {
		add(n)
	}
	a.bytes("/modules.list", 0o100644, []byte(strings.Join(list, "\n")))
}

// needs returns the dependencies of the module in a file, sorted.
func needs(file string) []string {
	e, err := elf.Open(file)
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	section := e.Section(".modinfo")
	if section == nil {
		log.Fatalf("%s is no kernel module", file)
	}
	info, err := section.Data()
	if err != nil {
		log.Fatal(err)
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			modules := strings.Split(list, ",")
			slices.Sort(modules)
			return modules
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("mkcpio: ")
	out := flag.String("o", "", "the archive to write")
	tree := flag.String("modules", "", "the directory with the kernel's modules")
	load := flag.String("load", "", "kernel modules to add, separated by commas")
	flag.Parse()
	f, err := os.Create(*out)
	if err != nil {
		log.Fatal(err)
	}
	a := &archive{w: bufio.NewWriterSize(f, 1<<20), dirs: map[string]bool{}}
	for _, arg := range flag.Args() {
		dst, src, ok := strings.Cut(arg, "=")
		if !ok {
			log.Fatalf("%q is not DST=SRC", arg)
		}
		if t, ok := strings.CutPrefix(src, "link:"); ok {
			a.bytes(dst, 0o120777, []byte(t))
		} else if src == "dir:" {
			a.dir(dst)
		} else {
			a.file(dst, src)
		}
	}
	if *load != "" {
		a.modules(*tree, strings.Split(*load, ","))
	}
	a.header("TRAILER!!!", 0, 0)
	for a.pos%512 != 0 {
		a.write([]byte{0})
	}
	if err := a.w.Flush(); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
}
