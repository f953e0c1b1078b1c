module github.com/conchsh/conch

go 1.26.0
