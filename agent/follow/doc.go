// Package follow follows files of JSON objects that others write: which files
// there are, what they grow by, and how far each was read.
//
// It knows nothing of agents. It must not lose a record while the file is
// there, must not give half of one, and holds a bounded piece of any file in
// memory. A record that its Handler took is given again only after a crash, or
// when the file was written anew.
package follow
