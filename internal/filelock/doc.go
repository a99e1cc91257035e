// Package filelock locks a file, so that two processes do not use the same folder.
package filelock
