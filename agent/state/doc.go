// Package state stores the small values that an agent needs after a restart: statuses, restart
// back-offs, ages of images, pull records, deadlines of ending pods.
//
// # What it does
//
// A [Store] stores values by key. [Files] returns a store in a folder, in which a key is the
// path of a file. [Memory] returns a store in memory. The managers of this module do not import
// this package. They declare interfaces with the methods that they call, so any type with the
// methods of Store fits.
//
// # What you supply
//
// You supply a folder for Files to which no other process writes, or your own Store, for example
// in a database. All packages of an agent can use the same store, because their keys differ:
//
//	store := state.Files("/var/lib/agent")
//	saved := status.NewSaved(store)
//	…
//	manager, err := images.New(images.Config{State: store, …})
//
// # What it guarantees
//
//  1. If a crash interrupts a Put, the key has its old value or its new value. After Put has
//     returned, the key has the new value, even after a power failure.
//  2. A key never refers to a path outside the folder of Files, and the store follows no
//     symbolic links in the folder. The folder itself may be a symbolic link.
//  3. Get never returns the remains of an interrupted Put as a value. The next Put or Delete of the
//     key, or a call of Keys for the folder of the key, removes these remains.
//  4. The folder of Files may also contain files and folders that are not values, such as
//     volumes. The store does not change them.
//  5. An error names the key. If the key has no value, the error of Get wraps fs.ErrNotExist.
//
// # Goroutines and locking
//
// The package starts no goroutine. All methods are safe for concurrent use. Writes of the same
// key wait for each other. Files and Memory ignore the context, because they wait only for locks
// and for the disk.
//
// # Differences from the kubelet
//
// Each manager of the kubelet has its own files and formats below the kubelet's root directory,
// and overwrites some of the files in place. Here, one store has all values, and the store need
// not be on the disk.
//
// # Testing your code with it
//
// A store of Memory needs no clean-up. Use Files with t.TempDir to examine the stored files. To
// test your code with a failing disk, create a file at a path where the store needs a folder.
package state
